"""EXAONE-4.5 for one exact vLLM version, laid into an installed vLLM and taken out again.

This package is shipped as the wheel ``vllm-exaone-delta`` and needs nothing but Python. Its
``payload`` directory holds the changed files, named by their SHA-256, and ``manifest.json`` says
which file of vLLM each one replaces and what that file must be before.
"""
