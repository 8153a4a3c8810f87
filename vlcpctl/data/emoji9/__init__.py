"""The built-in data set: the glyphs of 1,870 emoji in nine groups, and the views made of them."""
