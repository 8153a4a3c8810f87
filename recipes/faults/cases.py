"""All cases, in the order of the table."""

from __future__ import annotations

from case import Case
from cases_data import BUFFER, LINEAGE, SOURCE, STREAM, TASK
from cases_deletion import DELETION
from cases_options import OPTIONS, PLACES, VARIABLES
from cases_processes import KILLS, LIMITS, SIGNALS, TOGETHER
from cases_production import PRODUCTION
from cases_rows import ROWS
from cases_sources import IMAGES, SOURCES
from cases_state import CHECKPOINT, PARTIAL, TARGETS

_TABLES = (
    PARTIAL, CHECKPOINT, TARGETS, TASK, BUFFER, STREAM, SOURCE, LINEAGE, ROWS, OPTIONS, VARIABLES,
    PLACES, PRODUCTION, SOURCES, IMAGES, SIGNALS, LIMITS, TOGETHER, KILLS, DELETION,
)  # fmt: skip
CASES: list[Case] = [case for table in _TABLES for case in table.cases]
