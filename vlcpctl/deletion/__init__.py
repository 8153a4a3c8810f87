"""Deletion requests: find pairs in everything that stores them, remove them, write a receipt."""
