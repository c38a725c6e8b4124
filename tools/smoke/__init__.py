"""Ask a tiny EXAONE-4.5 through a real engine and compare with what transformers answers."""
