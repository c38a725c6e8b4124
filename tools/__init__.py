"""Tooling that carries the EXAONE-4.5 series and overlay onto any upstream vLLM ref."""
