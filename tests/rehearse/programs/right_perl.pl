# Right: the same in Perl.
use strict;
use warnings;
my $told = 0;
$SIG{TERM} = sub { $told = 1 };
my ($step, $sum) = (0, 0);
if (open my $in, '<', 'state') { ($step, $sum) = split ' ', <$in>; close $in }
sub save {
    open my $out, '>', 'state.tmp' or die;
    print $out "$step $sum\n";
    close $out;
    rename 'state.tmp', 'state';
}
while ($step < 25) {
    select undef, undef, undef, 0.04;
    $sum = ($sum * 31 + $step) % 1000003;
    $step++;
    save() if $step % 5 == 0;
    if ($told) { save(); exit 75 }
}
open my $out, '>', 'result.tmp' or die;
print $out "$sum\n";
close $out;
rename 'result.tmp', 'result.txt';
