"""Changed configs against the reference: is a reading that is called exact ever wrong?"""
