"""The page of options says what the tables of the targets say."""

from make_launch_tables import FILE, page, section

from planner.launch.option_table import OptionTable
from planner.launch.targets import targets


def test_the_page_is_what_the_tables_say() -> None:
    assert FILE.read_text(encoding="utf-8") == page()


def test_every_row_of_a_table_is_on_the_page() -> None:
    for target in targets().values():
        lines = [line for line in section(target).splitlines() if line.startswith("|")]
        own = [row for row in target.table.rows if row not in OptionTable.load("training").rows]
        assert len(lines) == len(own) + 2
