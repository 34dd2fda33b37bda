"""The checks of ``agentctl doctor``: `facts` collects facts, `checks` judges them."""
