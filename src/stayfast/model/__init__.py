"""Plain values that the control side and the runtime side share; no input or output happens here."""
