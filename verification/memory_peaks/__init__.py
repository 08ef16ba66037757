"""Do the peaks of public training programs add up, and is each of their bytes named?"""
