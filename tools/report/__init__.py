"""One outcome model, rendered for a terminal, for machines, as Markdown and as a page."""

from tools.report.console import carry_table, tags_table
from tools.report.contracts import contract_table, doctor_table
from tools.report.data import carried_data, tags_data
from tools.report.matrix import matrix_data, matrix_page, matrix_table
from tools.report.wheels import (
    build_data,
    build_table,
    inspection_data,
    inspection_table,
    smoke_table,
)

__all__ = [
    "build_data",
    "build_table",
    "carried_data",
    "carry_table",
    "contract_table",
    "doctor_table",
    "inspection_data",
    "inspection_table",
    "matrix_data",
    "matrix_page",
    "matrix_table",
    "smoke_table",
    "tags_data",
    "tags_table",
]
