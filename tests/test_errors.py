from pinnfuse.errors import nearest


def test_nearest_names_the_close_one_and_all_known() -> None:
    assert nearest("burger", ["heat", "burgers"]) == "Did you mean 'burgers'? Known: 'burgers', 'heat'."


def test_nearest_guesses_nothing_when_nothing_is_close() -> None:
    assert nearest("xyz", ["heat", "burgers"]) == "Known: 'burgers', 'heat'."
    assert nearest("xyz", []) == "Known: none."
