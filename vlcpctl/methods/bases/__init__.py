"""Bases shared by several methods: weight penalties, distillation, dark experience replay."""
