"""Lets `python -m vlcpctl` and torchrun start the program."""

from __future__ import annotations

from vlcpctl.cli import main

if __name__ == "__main__":
    main()
