"""``stayfast dashboard``: one small server over what is there already; it keeps no database of its own."""
