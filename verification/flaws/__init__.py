"""Performance flaws that public material names, and whether the recommendations find them.

`catalogue` lists the flaws with their sources, collected without a look at the rules;
`split.json` divides them by a seed, before any was run: rules are written on the half
`developing` and judged on the half `held_out`. `python -m verification.flaws` runs them on a GPU.
"""
