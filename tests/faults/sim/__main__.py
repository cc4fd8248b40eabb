from faults.sim.command import main

main()
