"""Commands for operators: doctor, acl, scripts, drop."""
