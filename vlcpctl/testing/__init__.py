"""Tests that every method must pass, for methods of your own. They need pytest.

`python -m vlcpctl.testing --method NAME [--method-file FILE.py]` runs them. `laws` checks
what a method declares, `battery` trains it over a tiny stream and kills it, `off` turns it off.
"""
