"""A checkpoint under the names, in the arrangement and with the settings of another library."""
