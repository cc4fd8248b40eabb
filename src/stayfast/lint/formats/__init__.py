"""How findings are written: text for people, and the formats of the tools around them."""
