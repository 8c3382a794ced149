"""Small networks that nobody names: layers that are called one after the other, read by shapes and order alone.

`elements` says what each leaf reads and gives, `order` in which order their sizes go together, `between` what is known of the
places between them, `extents` whether sizes add up, `statements` writes the forward, and `reading` makes a flow of it.
"""
