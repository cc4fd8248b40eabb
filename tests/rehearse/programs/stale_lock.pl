# Wrong: a lock file that only a handler removes; after a kill every start finds it and dies.
use strict;
use warnings;
use Fcntl;

$SIG{TERM} = sub { unlink "lock"; exit 75 };
sysopen(my $lock, "lock", O_CREAT | O_EXCL | O_WRONLY) or die "locked by another: $!\n";
close $lock;
my $step = 0;
if (open(my $file, "<", "step")) { $step = <$file>; close $file; }
while ($step < 25) {
    select(undef, undef, undef, 0.03);
    $step++;
    open(my $file, ">", "step.tmp") or die $!;
    print $file $step;
    close $file;
    rename "step.tmp", "step";
}
open(my $file, ">", "result.tmp") or die $!;
print $file "$step\n";
close $file;
rename "result.tmp", "result.txt";
unlink "lock";
