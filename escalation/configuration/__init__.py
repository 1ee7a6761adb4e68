"""Configuration in git: files, plan, application and export of what operators declare."""
