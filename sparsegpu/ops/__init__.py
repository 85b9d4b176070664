"""Operations: validate, allocate ``out``, pick the engine by the arrays, nothing else.

One file an operation family. A block-sparse argument is anything with ``.pattern`` and
``.data``, so nothing here knows the classes that users hold.
"""
