"""What is measured, against whom, how, and what must come out.

`cases` says what is measured and which bar (`bars`) it must clear, `problem` makes a case's
operands, `check` holds the result to the accuracy bound, `timing` measures, `peers` does the same
work with other libraries, `measure` brings these together row by row, `report` judges and prints
the rows, `plot` draws them. ``python -m sparsegpu bench`` and ``python -m benchmarks.race`` are two
doors to `race`.
"""
