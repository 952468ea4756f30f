"""Measurements against floors: `python -m bench`, or `make bench`. What they mean stands in bench/README.md."""
