"""Conditions on a report's numbers, such as `--fail-if bwt_gem:lt:-5`, that stop a pipeline."""
