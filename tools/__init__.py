"""Tools of development: the sanitizer harness and the records; not part of the wheel."""
