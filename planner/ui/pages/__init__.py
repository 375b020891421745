"""Pages of results for decision makers, as blocks that become HTML or Markdown.

A file or directory is read into a document (`result_json`), and a document becomes a page of
blocks (`page_of_file`, `comparison`, `sweep`). Its columns and the terms table decide the content,
whatever the workload. The terminal shows the same blocks. Templates and Markdown use only blocks.
"""
