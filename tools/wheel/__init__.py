"""Wheels of carried trees: repacked from upstream's, described, checked, taken apart again."""
