"""The benchmark of ``python -m sparsegpu bench``: our operations beside other libraries'.

`cases` lists what is measured and the bars (`bars`) it is judged by. `workload`, `formats` and
`operations` make a case's operands, and check its result (`check`). `peers` prepares the same work
in other libraries. `measure` brings these together in one row of a table, `race` runs all rows,
`report` judges and prints them, `plot` draws them.
"""
