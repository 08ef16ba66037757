"""Performance flaws that public material names, and whether the recommendations find them.

`catalogue` lists the flaws with their sources. Those of the first collection were collected without
a look at the rules; `split.json` divides them by a seed, before any was run: rules are written on
the half `developing` and were judged on the half `held_out`, which is spent since then.
`held_out_2` to `held_out_12` are the second to the twelfth collection, made later by somebody who
had not read the rules, of flaws that no earlier one has. `held_out_13` and `held_out_14` were drawn
by a seed from all that pages and threads name; their candidates are in JSON files.
`python -m verification.flaws` runs them on a GPU.
"""
