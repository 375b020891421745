"""Pages of results for decision makers, as blocks that become HTML or Markdown.

A command makes a result, or its file gives it back (`planner.show.reports`), and a result becomes
a page of blocks (`page_of_file`, `comparison`, `sweep`). Its columns and the terms table decide the
content, whatever the workload. Most blocks are those of the terminal. Templates and Markdown use
only blocks.
"""
