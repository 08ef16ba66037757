"""Report.html: one page without network that shows where device time goes."""

from profiler_ext.exporters.html.page import export_html, export_ranks, html_text

__all__ = ["export_html", "export_ranks", "html_text"]
