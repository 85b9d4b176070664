"""Measurements and the record of GPU runs; nothing here ships in the wheel."""
