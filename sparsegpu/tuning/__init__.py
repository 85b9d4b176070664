"""The search for the fastest configuration of a product: `sparsegpu.tune`, and what it needs.

`tune` searches our kernel paths, `tune_cusparselt` the algorithms of cuSPARSELt, which
`search_cusparselt` tries in a process of its own. `timing` measures calls on the device and on the
host, `operands` draws random operands on the device, `progress` reports a search while it runs.
"""
