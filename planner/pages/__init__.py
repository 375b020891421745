"""Pages for those who decide: what a result says as blocks, and these as HTML and as Markdown.

A file or directory is read into a document (`planner.pages.document`), a document becomes a page of
blocks (`searched`, `sized`, `swept`, `estimated`), whatever the workload: its columns and the table
of terms decide what stands there. Templates and Markdown know blocks alone.
"""
