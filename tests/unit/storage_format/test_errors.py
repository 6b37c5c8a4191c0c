"""The text of an error as it is printed."""

from rocketmq_reindex.storage_format.errors import error_lines, errors_of


def test_lines_that_begin_with_blanks_go_on_with_the_error_before() -> None:
    text = "log: damage\n  repair it\n  or stop before it\n--only: take one"
    assert errors_of(text) == ["log: damage\n  repair it\n  or stop before it", "--only: take one"]
    assert error_lines(text) == "error: log: damage\n  repair it\n  or stop before it\nerror: --only: take one"


def test_an_error_may_begin_with_a_path_that_begins_with_blanks() -> None:
    assert error_lines("  store: is not a folder") == "error:   store: is not a folder"
