"""The door for lm-evaluation-harness: a model of ours as one of its models, by the name `trisplit`.

`scoring` knows nothing of it; `model` is what it calls; `python -m trisplit.harness` is its own command, with
our model known to it.
"""
