"""Pages for those who decide: what a result says as blocks, and these as HTML and as Markdown.

A file or directory is read into a document (`planner.ui.pages.result_json`), a document becomes a
page of blocks (`searched`, `swept`), whatever the workload: its columns and the table of terms
decide what stands there. What the terminal says of a sweep, and of what if, the same views say
here. Templates and Markdown know blocks alone.
"""
