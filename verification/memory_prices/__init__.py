"""Are bytes and time that recommendations about memory claim those of the edited program?"""
