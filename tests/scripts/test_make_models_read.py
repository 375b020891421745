"""The page of models is what the table of families says."""

from make_models_read import FILE, page

from planner.specs.hugging_face_families import COMPOSITES, FAMILIES, UNMODELLED


def test_the_page_is_what_the_table_says() -> None:
    assert FILE.read_text(encoding="utf-8") == page()


def test_every_type_is_on_the_page_once() -> None:
    tables = page().partition("## Models of several modes")
    for name in FAMILIES.keys() | UNMODELLED.keys():
        assert f"`{name}`" in page(), name
    for name in UNMODELLED:
        assert page().count(f"`{name}`") == 1, name
    assert sum(f"`{name}`" in tables[2] for name in COMPOSITES) == len(COMPOSITES)
