"""One inspection result, as text and as JSON."""

from mapper.report.report import Report

__all__ = ["Report"]
