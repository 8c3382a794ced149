"""Names, shapes and dtypes to leaves and blocks: tree, leaf kinds, vocabulary, towers."""
