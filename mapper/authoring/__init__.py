"""For those who write rules: checks them, explains what they decide, lists them, drafts a family."""
