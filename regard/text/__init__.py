"""Words, sentences and sounds."""
