"""``agentctl doctor``: `facts` are what this machine says, `checks` what that means for runs."""
