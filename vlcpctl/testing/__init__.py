"""Tests that every method must pass, for methods of your own; they need pytest.

    pytest --pyargs vlcpctl.testing --method NAME [--method-file FILE.py]

`laws` checks what a method declares; `battery` trains it over a tiny stream and kills it.
"""
