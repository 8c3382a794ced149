"""A plain text, for models of language to read."""

PASSAGE = """\
When the river rose in the spring, the people of the village carried their chairs and tables up the stairs and waited. The
water came slowly at first, across the lower fields and then along the road, until the mill stood in it like a boat. Nobody
was afraid, because the same thing had happened every few years for as long as anyone could remember. They lit the stove,
made tea, and told the children stories about the great flood, when a cow had been found on the roof of the church.

A list is a sequence of items that can be changed. To add an item at the end of the list, call the method append with the
item as its argument; to remove the last item, call pop. If the list is empty, pop raises an error. The built-in function
len returns the number of items. In most programs a loop over the items is easier to read than a loop over their numbers, and
it is also faster. If you need both, use the function enumerate, which returns each item together with its position.

The heart is a muscle that pumps blood through the body. In a healthy adult it beats between sixty and one hundred times a
minute at rest, and faster during exercise. Blood that has lost its oxygen returns to the right side of the heart, which sends
it to the lungs; blood that is rich in oxygen comes back to the left side, which sends it to the rest of the body. Doctors
listen to the heart because the sound of its valves can show whether they open and close as they should.
"""
