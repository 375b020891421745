"""Changes of options in a user's file, each read back before it counts."""

from planner.launch.reading.edit.changes import Changes as Changes
from planner.launch.reading.edit.changes import Edited as Edited
from planner.launch.reading.edit.command import edit_command as edit_command
from planner.launch.reading.edit.document import edit_document as edit_document
