"""`vlcpctl train-step`: its plan, its data and its launch. `*plan.py` imports no torch."""
