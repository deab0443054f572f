"""Servers of skills: an honest one, and some that are not what they seem."""

from toolwire.testing import TamperedSkills

honest = TamperedSkills("nothing").server
changed_file = TamperedSkills("digest").server
wrong_name = TamperedSkills("wrong name").server
generated = TamperedSkills("dynamic").server
